# A
croupier proposal send signed.toml --dir study

# B
croupier proposal send signed.toml --dir study
