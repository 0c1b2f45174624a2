"""Golden vectors, the programs that write them, and the tests that the services' own code accepts them."""
