"""Who else is informed of what the gateway does?"""
