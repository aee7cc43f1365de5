"""The commands by name: module and function, and the first sentence of the help.

A module, and PyTorch with it, is imported when its command runs.
"""

COMMANDS = {
    "demo": (
        "demo:demo",
        "Run the paper's methods on mini-ImageNet features, then label images; two to three "
        "minutes.",
    ),
    "label": (
        "label:label",
        "Label images from a few examples per class; no training, no GPU needed.",
    ),
    "review": (
        "review:review",
        "Review the labels of a run in the browser; every answer is saved at once.",
    ),
    "audit": (
        "audit:audit",
        "Draw photos at random to check by hand; with the answers, print how accurate the labels "
        "are.",
    ),
    "suggest": (
        "suggest:suggest",
        "List the photos whose label would help most: doubtful, and unlike each other.",
    ),
    "predict": (
        "predict:predict",
        "Label new images with the classifier of a run, each independently of the others.",
    ),
    "train": (
        "train:train_backbone",
        "Train a network on the train classes. The same command resumes an interrupted run.",
    ),
    "extract": (
        "extract:extract",
        "Compute the features of every image of a split, with labels, class names and provenance.",
    ),
    "extract-shards": (
        "extract_shards:extract_shards",
        "Compute the features of any images as shards for solve-shards; finished shards are kept.",
    ),
    "bench": (
        "bench:bench",
        "Compare methods on many random tasks: accuracy with 95% interval, macro F1, time per "
        "task.",
    ),
    "reproduce": (
        "reproduce:reproduce",
        "Compute every table and figure of the TIM paper, beside the published numbers.",
    ),
    "solve": (
        "solve:solve_file",
        "Label all unlabelled rows of one feature file from its labelled rows.",
    ),
    "solve-shards": (
        "solve_shards:solve_shards_command",
        "Label the rows of many files of features as one task, without holding them in memory.",
    ),
    "methods": (
        "methods:list_methods",
        "List the methods: what each assumes about the queries, what it costs, its settings.",
    ),
    "systems": (
        "systems:list_systems",
        "List the few-shot systems that train a network: what each needs, and its settings.",
    ),
    "data": ("data:data", "Data sets on disk."),
}
