"""Who asks, and who pays?"""
