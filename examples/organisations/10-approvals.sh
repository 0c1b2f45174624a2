# B
croupier deployment assemble --approvals 2 --dir study
croupier deployment sign --dir study
scp study/proposal.toml a.example:study/

# A
croupier deployment sign --dir study
scp study/proposal.toml d.example:study/

# D
croupier deployment sign --dir study
