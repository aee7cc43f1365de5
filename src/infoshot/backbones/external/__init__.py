"""Networks of other packages behind our interface; each package is imported when asked for."""
