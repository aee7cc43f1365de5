"""TIM-ADM over queries that are read chunk by chunk."""
