# A
scp study/shuffler-1.public.toml b.example:study/

# C
scp study/analyzer.public.toml b.example:study/
