module github.com/quotad/quotad

go 1.26.0
