"""The paper's claims as data, and how a measurement is judged against them."""
