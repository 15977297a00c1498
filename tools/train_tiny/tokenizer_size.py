"""Size of the vocabulary, shared by the tokeniser's trainer and the model."""

VOCAB_SIZE = 2560
