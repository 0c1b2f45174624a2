# B
croupier survey open smokes --min-batch-size 2 --epsilon-max 2 --dir study
