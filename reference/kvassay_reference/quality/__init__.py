"""What a selection keeps, loses and costs, and what may be done about it before anything is published.

A recorded run names units; units lead to rows; rows hold a share of the dense softmax; what they lack moves the output.
Each step is a function of its own, and none needs the selector that made the run. Sources are sections 09 to 09L of
the article; the chapter ``spec/quality.md`` derives everything here.
"""
