# D
croupier org new --role analyzer --host d.example --organisation "Clinic D" --dir study
scp study/analyzer.public.toml b.example:study/

# B
croupier proposal new study/analyzer.public.toml --dir study
croupier proposal sign --accept-loss analyzer --dir study
scp study/proposal.toml a.example:study/

# A
croupier proposal sign --accept-loss analyzer --dir study
scp study/proposal.toml d.example:study/

# D
croupier proposal sign --dir study
scp study/deployment.toml a.example:signed.toml
scp study/deployment.toml b.example:signed.toml

# A
croupier proposal send signed.toml --accept-loss analyzer --dir study

# B
croupier proposal send signed.toml --accept-loss analyzer --dir study
