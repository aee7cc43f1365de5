"""TIM-ADM over queries that are read in chunks."""
