# B
croupier proposal new --approvals 2 --dir study
croupier proposal sign --dir study
scp study/proposal.toml a.example:study/

# A
croupier proposal sign --dir study
scp study/proposal.toml d.example:study/

# D
croupier proposal sign --dir study
