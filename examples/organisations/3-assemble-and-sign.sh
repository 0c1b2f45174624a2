# B
croupier org show study/shuffler-1.public.toml
croupier org show study/analyzer.public.toml
croupier deployment assemble study/shuffler-1.public.toml study/accountant.public.toml study/analyzer.public.toml study/operator.public.toml --name study --dir study
croupier deployment sign --dir study
scp study/proposal.toml a.example:study/

# A
croupier deployment sign --dir study
scp study/proposal.toml c.example:study/

# C
croupier deployment sign --dir study
scp study/deployment.toml a.example:signed.toml
scp study/deployment.toml b.example:signed.toml
