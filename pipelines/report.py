def results_table(r):
    return str(r["validation"]) + str(r["test"])
