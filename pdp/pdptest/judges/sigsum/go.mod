module sigsum.org/sigsum-go

go 1.26.0
