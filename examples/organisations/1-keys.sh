# A
croupier org new --role shuffler --host a.example --organisation "University A" --administrator "Ada" --dir study

# B
croupier org new --role accountant --host b.example --organisation "Institute B" --administrator "Bo" --dir study
croupier org new --role operator --host b.example --organisation "Institute B" --administrator "Bo" --dir study

# C
croupier org new --role analyzer --host c.example --organisation "Clinic C" --administrator "Cy" --dir study
