"""What people and programs see of a result: the JSON documents, tables in the terminal made from them, and plots."""
