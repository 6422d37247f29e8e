"""Models on the Hugging Face Hub."""
