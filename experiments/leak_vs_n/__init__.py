"""What an adversary takes out of an embedding as the number of its records grows."""
