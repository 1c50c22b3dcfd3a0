"""Does a problem fit into a capacity?"""
