"""Everything that puts the roles together: command line, keys, local deployment, operator, demo, benchmark."""
