"""The page on which participants answer, and the document by which it and they recognise a deployment."""
