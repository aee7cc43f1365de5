"""The tables of the paper, made again and laid beside the printed ones."""
