# B
croupier survey open sleep --min-batch-size 2 --epsilon-max 2 --dir study || test $? = 3
scp study/operator/proposals/1.toml a.example:study/

# A
croupier proposal show study/1.toml --dir study
croupier proposal sign study/1.toml --dir study
scp study/1.toml b.example:study/

# B
croupier proposal sign study/operator/proposals/1.toml study/1.toml --dir study
croupier proposal send study/operator/proposals/1.toml --dir study
