"""CascadeXML: all resolutions of a label tree learnt at once."""
