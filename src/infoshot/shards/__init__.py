"""One task whose queries are many files of features, on one machine or several."""
