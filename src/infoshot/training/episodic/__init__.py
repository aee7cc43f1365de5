"""Few-shot systems that are trained on episodes; one short file per system."""
