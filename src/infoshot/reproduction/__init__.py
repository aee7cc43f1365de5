"""The paper's tables and figure, computed again and shown beside the published numbers."""
