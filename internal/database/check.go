package database

// CheckAddress reports what is wrong with an address, without a look at what it leads to. The error may repeat parts of
// the address.
func CheckAddress(url string) error {
	engine, err := EngineOf(url)
	if err != nil {
		return err
	}
	if engine == Postgres {
		_, err = parsePostgres(url, 0)
	} else {
		_, err = sqlitePath(url)
	}
	return err
}
