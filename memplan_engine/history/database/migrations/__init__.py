"""How the tables of a store came to be, one file a step, the latest the highest number. A step that has been
released stays as it is; a new one gets the next number, and says in `down_revision` what it stands on."""
