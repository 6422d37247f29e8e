"""LightXML: an encoder fine-tuned with dynamic negative sampling."""
