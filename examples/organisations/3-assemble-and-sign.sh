# B
croupier org show study/shuffler-1.public.toml
croupier org show study/analyzer.public.toml
croupier proposal new study/shuffler-1.public.toml study/accountant.public.toml study/analyzer.public.toml study/operator.public.toml --name study --dir study
croupier proposal sign --dir study
scp study/proposal.toml a.example:study/

# A
croupier proposal sign --dir study
scp study/proposal.toml c.example:study/

# C
croupier proposal sign --dir study
scp study/deployment.toml a.example:signed.toml
scp study/deployment.toml b.example:signed.toml
