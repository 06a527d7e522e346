"""Where does foreign code run? In a sandbox that was attacked when the gateway started."""
