# B
croupier round propose sleep --min-batch-size 2 --epsilon-max 2 --out study/sleep.json --dir study
scp study/sleep.json a.example:study/

# A
croupier proposal show study/sleep.json --dir study
croupier proposal approve study/sleep.json --yes --dir study
scp study/sleep.json b.example:study/

# B
croupier proposal approve study/sleep.json --yes --dir study
croupier proposal send study/sleep.json --dir study
