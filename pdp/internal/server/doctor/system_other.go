//go:build !linux

package doctor

import "errors"

func volumeOf(string) (volume, error) { return volume{}, errors.ErrUnsupported }
