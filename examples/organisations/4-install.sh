# A
croupier deployment sign signed.toml --dir study

# B
croupier deployment sign signed.toml --dir study
