"""LightXML: an encoder fine-tuned with dynamic negative sampling."""

from labelgrove.methods.lightxml.method import LightXML as LightXML
