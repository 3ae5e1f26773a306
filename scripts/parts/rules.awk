# Reads the tables of rules and defects, and what the test harness says of the tests they name.
#
#   awk -v ask=names -f rules.awk TABLE...                  the names of all tests, one a line
#   awk -v ask=verdict -f rules.awk TABLE... - <VERDICTS    a line for each row that is not held, and a closing line
#
# A table is Markdown in the documentation of a Rust module; a row counts when it has three columns, the last of which
# names tests in code marks. VERDICTS are lines `NAME WORD`, WORD being ok, or what else became of the test.

function trim(text) {
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    return text
}

/^\/\/! \|.*\|$/ {
    line = substr($0, 5)
    cells = split(line, cell, "|")
    # Before the first bar and behind the last one there is nothing.
    if (cells != 5 || trim(cell[4]) ~ /^-+$/ || trim(cell[4]) == "held by" || trim(cell[4]) == "proved by") next
    row[++rows] = trim(cell[2])
    marks = split(cell[4], part, "`")
    for (i = 2; i <= marks; i += 2) tests[rows] = tests[rows] " " part[i]
    next
}

ask == "verdict" && NF == 2 && !/^\/\// { verdict[$1] = $2 }

END {
    if (ask == "names") {
        for (r = 1; r <= rows; r++) {
            count = split(tests[r], name, " ")
            for (i = 1; i <= count; i++) print name[i]
        }
        exit
    }
    for (r = 1; r <= rows; r++) {
        count = split(tests[r], name, " ")
        if (count == 0) {
            print "not held: \"" row[r] "\" names no test"
            bad++
        }
        for (i = 1; i <= count; i++) {
            became = (name[i] in verdict) ? verdict[name[i]] : "does not exist"
            if (became != "ok") {
                print "not held: \"" row[r] "\": " name[i] " " became
                bad++
            }
            named++
        }
    }
    print rows " rules name " named + 0 " tests; " bad + 0 " are not held"
    exit bad > 0 || rows == 0
}
