#!/bin/sh
# Generate croupier/protocol/v1 from proto/croupier/protocol/v1, and the JSON schemas of certificates and results; with
# --check, only say whether the committed files are what would be made.
# protoc names a Python module by the path of its .proto file: under proto/ that is the path of the package.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
bin=$(dirname "$PYTHON")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
PATH="$bin:$PATH" "$PYTHON" -m grpc_tools.protoc --proto_path=proto \
  --python_out="$out" --mypy_out="quiet:$out" proto/croupier/protocol/v1/*.proto
PATH="$bin:$PATH" "$PYTHON" -m grpc_tools.protoc --proto_path=proto \
  --grpc_python_out="$out" --mypy_grpc_out="quiet:$out" proto/croupier/protocol/v1/services.proto
made="$out/croupier/protocol/v1"
if [ "${1:-}" != "--check" ]; then
  cp "$made"/* croupier/protocol/v1/
  for document in certificate result; do
    "$PYTHON" -m research.json_schema "$document" > "$out/schema.json"
    cp "$out/schema.json" "croupier/protocol/$document.schema.json"
  done
  exit 0
fi
for document in certificate result; do
  "$PYTHON" -m research.json_schema "$document" | cmp -s - "croupier/protocol/$document.schema.json" ||
    { echo "proto drift: croupier/protocol/$document.schema.json; run 'make protos'" >&2; exit 1; }
done
for file in "$made"/*; do
  cmp -s "$file" "croupier/protocol/v1/$(basename "$file")" || { echo "proto drift: croupier/protocol/v1/$(basename "$file"); run 'make protos'" >&2; exit 1; }
done
for kept in croupier/protocol/v1/*_pb2*.py*; do
  [ -e "$made/$(basename "$kept")" ] || { echo "proto drift: $kept has no .proto any more" >&2; exit 1; }
done
echo "generated code matches proto/"
