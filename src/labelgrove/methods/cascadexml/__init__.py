"""CascadeXML: all resolutions of a label tree learnt at once."""

from labelgrove.methods.cascadexml.method import CascadeXML as CascadeXML
