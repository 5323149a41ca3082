"""Rows of predictions and targets: checked at the door, cleaned before they are used."""

from calibjax._rows._checked import check_data as check_data
from calibjax._rows._checked import check_locations as check_locations
from calibjax._rows._checked import check_predictions as check_predictions
from calibjax._rows._checked import check_rows as check_rows
from calibjax._rows._checked import parameters as parameters
from calibjax._rows._covariates import Frame as Frame
from calibjax._rows._covariates import with_covariates as with_covariates
from calibjax._rows._data import Covariates as Covariates
from calibjax._rows._data import Data as Data
from calibjax._rows._data import clean as clean
from calibjax._rows._data import clean_kept_first as clean_kept_first
from calibjax._rows._data import fill_masked as fill_masked
from calibjax._rows._data import in_dtype as in_dtype
from calibjax._rows._data import kept_first as kept_first
from calibjax._rows._data import valid_rows as valid_rows
from calibjax._rows._dependence import Dependence as Dependence
from calibjax._rows._dependence import check_unrelated as check_unrelated
from calibjax._rows._dependence import describe_units as describe_units
from calibjax._rows._dependence import n_units as n_units
from calibjax._rows._dependence import with_dependence as with_dependence
from calibjax._rows._ladder import filled_up as filled_up
from calibjax._rows._ladder import first_rows as first_rows
from calibjax._rows._ladder import padded as padded
from calibjax._rows._ladder import rung as rung
