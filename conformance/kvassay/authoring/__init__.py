"""From what people write to frozen data: chapters, authors and oracles become the files that ship.

``python -m kvassay.authoring`` works in a source tree alone; nothing that judges an engine imports this package.
"""
