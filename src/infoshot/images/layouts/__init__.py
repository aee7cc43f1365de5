"""The shapes in which image data sets circulate, one file each."""
