# A
croupier rotate shuffler-1 --host a2.example --dir study
croupier proposal sign --dir study
scp study/proposal.toml b.example:study/

# B
croupier proposal sign --dir study
scp study/proposal.toml c.example:study/

# C
croupier proposal sign --dir study
