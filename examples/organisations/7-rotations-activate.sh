# A
croupier rotate shuffler-1 --activate --dir study
scp study/shuffler-1.public.toml b.example:study/

# C
croupier rotate analyzer --activate --dir study
scp study/analyzer.public.toml b.example:study/

# B
croupier proposal new study/shuffler-1.public.toml study/analyzer.public.toml --dir study
croupier proposal sign --dir study
scp study/proposal.toml a.example:study/

# A
croupier proposal sign --dir study
scp study/proposal.toml c.example:study/

# C
croupier proposal sign --dir study
